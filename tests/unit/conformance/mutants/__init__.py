"""Broken clouds: for each scenario one that is broken in one way, and fails that scenario and no
other.

A mutant is a subclass of one part of the fake cloud. Its docstring says what is wrong with it;
`@breaks` says which scenario notices.
"""
