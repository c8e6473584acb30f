"""Parser regression: runs test cases of each parser family on vLLM versions and compares with a baseline.

Imports point one way:

    cases <- engines <- results <- run <- search, changed

`cases` defines what a model generates, what a request offers, and the expected answer, for any engine.
`engines` runs cases, in process or over HTTP, and returns the answers.
`results` compares actual with expected answers, and stores the results (cells) and baselines.
`run` runs the cells that have not finished.
`search` finds the smallest failing cases.
`changed` finds the families that a change to vLLM's code can affect, and the code before that change.
`selection` and `listing` implement options of the command line.
`workers` holds scripts that run in vLLM's interpreter; they import nothing from this package.
"""
