"""The controller's web page: the tree of switches, the jobs, and the log. It changes nothing.

``python -m innet.observe.web.serve`` serves the page. ``innet controller --web`` starts this command as
a process of its own.
"""
