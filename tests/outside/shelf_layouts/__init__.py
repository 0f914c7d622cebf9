"""A package of somebody else, which only knows the public interface.

Nothing of our tests imports it: they ship it as a zip file, as its owner would.
"""
