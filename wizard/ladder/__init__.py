"""The ladder: a case over releases of an engine. Since when does it fail, and is it mended?"""
