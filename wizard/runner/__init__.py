"""The process that works on a session. The route: ``walk``; one step of it: ``stepping``,
``drive``; how long a build or another probe may take, its timeout: ``limits``; what a step will
cost: ``estimate``; whether the disk has room for it, and what goes where it has not:
``room``; what clients ask: ``control``."""
