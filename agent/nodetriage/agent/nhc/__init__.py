"""Translates the configuration of LBNL NHC (nhc.conf) into settings of the agent. Pure."""
