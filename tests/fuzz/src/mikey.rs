//! What a client says of its keys, and packets that are opened with them.

use onrush_wire::srtp::{
    KEY_MGMT_BYTES_MAX, MikeyMessage, RtcpReceiver, RtpReceiver, parse_crypto_attribute,
    parse_key_mgmt,
};

/// A message, a header and an attribute; and what stands behind a message as a packet.
///
/// # Panics
///
/// If a promise is broken: what was read is what is written, and nobody opens noise.
pub(crate) fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let _any = (parse_key_mgmt(&text), parse_crypto_attribute(&text));
    let Ok(message) = MikeyMessage::parse(input) else {
        return;
    };
    assert!(input.len() <= KEY_MGMT_BYTES_MAX);
    assert_eq!(
        MikeyMessage::parse(&message.to_bytes()).as_ref(),
        Ok(&message)
    );
    let rest = &input[input.len() / 2..];
    assert!(RtcpReceiver::new(&message.key).unprotect(rest).is_err());
    let mut packet = rest.to_vec();
    assert!(
        RtpReceiver::new(&message.key)
            .unprotect(&mut packet)
            .is_err()
    );
}
