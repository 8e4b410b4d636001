"""Sessions, Setup, Step and Finish. A screen draws the app's current scene and sends requests; it
decides nothing."""
