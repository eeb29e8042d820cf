"""The live map in a real Chromium: what a frame, a first picture and a page that watches cost."""
