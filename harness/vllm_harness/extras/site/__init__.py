"""The compatibility site: which vLLM can be trusted with a model, as pages made from runs and the registry.

features (what a case says something about), table (what works where), workarounds, scripts (what shows a
defect with vLLM alone), site (all that is known), changes (of a release), pages and feed (from templates),
build (one site, with the manual).
"""
