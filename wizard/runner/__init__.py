"""The process that works on a session. The route: ``walk``; one step of it: ``stepping``,
``drive``; how long a build or another probe may take, its timeout: ``limits``; what a step will
cost: ``estimate``; what goes from the disk once it is over its budget: ``room``; what clients ask:
``control``."""
