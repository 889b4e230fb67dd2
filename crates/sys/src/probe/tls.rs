//! Whether the kernel can encrypt for TLS (kTLS).

use super::Refused;
use crate::kernel_tls::{Cipher, ciphers};

/// The ciphers that it has.
pub(super) fn kernel_tls() -> Result<Vec<Cipher>, Refused> {
    ciphers().map_err(|refused| Refused::new(refused.call, refused.source))
}
