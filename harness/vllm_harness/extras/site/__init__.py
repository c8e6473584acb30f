"""The compatibility site: which vLLM can be trusted with a model, as pages made from runs and the registry.

- `features`: what a case shows about the features of a family; `table`: what works where
- `workarounds`: ways around a defect; `scripts`: the report and script of a defect
- `site`: the data of all pages; `changes`: what changed in a release
- `pages`, `files`, `feed`: the pages from templates, the other files, the feeds
- `build`: builds the whole site, with the manual
"""
