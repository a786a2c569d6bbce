"""The page at `/ui/`: static files, and a stream of what changes.

page     the files and the routes
stream   one reader's server-sent events, and how many readers there may be
picture  what has changed since a reader was last told
static/  HTML, CSS and ES modules as the browser gets them: no build step, nothing from elsewhere
"""
