//! RTSP 1.0 (RFC 2326): requests in, responses and intents out.
