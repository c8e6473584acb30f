"""Parser regression: every parser family over versions of vLLM, case by case, compared with a baseline.

Imports point one way:

    cases <- engines <- results <- run <- search, mutation, changed

`cases` has what a model says, what a request offers and what is expected, whichever engine runs it.
`engines` run cases, in process or over HTTP, and give answers.
`results` compares answers with what is expected, and keeps cells, baselines and findings.
`run` runs the cells that have not finished.
`search` looks for the smallest failing cases, `mutation` for changes of a parser that no case notices.
`changed` finds the families that a change of vLLM's code can have touched, and the code before it.
`selection` and `listing` are what the command line needs beside them.
`workers` run in the interpreter of vLLM, and import nothing of this package.
"""
