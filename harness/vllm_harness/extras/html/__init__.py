"""The report page of a run: one HTML file that opens from disk.

`scripts/report-page` builds its template `page.html` from the folder `source`.
"""
