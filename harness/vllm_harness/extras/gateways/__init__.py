"""Gateways: the same scripted requests to a server directly and through what stands before it.

cases (what is asked, as data), requests (a case as a request of an API), sending (bytes and their times),
check (a case both ways), recording (what came, in a folder), findings (what differs).
"""
