"""Tandem's programs, in bin/ beside this file; tandem.commands starts them."""
