"""Parser regression: every parser family on versions of vLLM, case by case, compared with a baseline.

Imports point one way:

    cases <- engines <- results <- run <- search, changed

`cases` has what a model generates, what a request offers and what is expected, independent of the engine.
`engines` run cases, in process or over HTTP, and return answers.
`results` compares answers with what is expected, and stores cells and baselines.
`run` runs the cells that have not finished.
`search` looks for the smallest failing cases.
`changed` finds the families that a change of vLLM's code can affect, and the code before the change.
`selection` and `listing` serve the command line.
`workers` run in the interpreter of vLLM, and import nothing from this package.
"""
