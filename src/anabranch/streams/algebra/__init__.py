"""Building streams from streams: copy, append, stitch, replace, build, and the arithmetic of cuts."""
