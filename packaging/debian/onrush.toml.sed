s|^#folder = ""$|folder = "/var/lib/onrush/media"|
