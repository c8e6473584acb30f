"""The compatibility site: which vLLM to trust with a model, on pages made from runs and the defect registry.

- `features`: which feature a case is about; `table`: which features work on which versions
- `workarounds`: ways around a defect; `scripts`: the report about a defect and a script that shows it
- `site`: the data of all pages; `changes`: what changed in a release
- `pages`, `files`, `feed`: the pages made from templates, the other files, the feeds
- `build`: builds the whole site, with the manual
"""
