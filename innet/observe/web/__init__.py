"""The controller's web page: the tree of switches, the jobs, and the log. It changes nothing.

``python -m innet.observe.web.serve`` serves it. ``innet controller --web`` starts this process.
"""
