"""The HTTPS server: connections, TLS and limits. It knows no controller."""
