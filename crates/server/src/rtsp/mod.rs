//! RTSP connections and sessions over TCP, and the RTCP beside each stream.
