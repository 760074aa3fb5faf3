"""The check `reach`: whether what the site names answers over the network. Off without settings."""
