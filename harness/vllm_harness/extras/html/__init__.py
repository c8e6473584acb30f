"""The page of a run: one HTML file that opens from disk.

Its source is the folder `source`, which `scripts/report-page` builds into `page.html`.
"""
