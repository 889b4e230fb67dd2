//! What TLS protects of a session (RFC 4217): the control connection after AUTH, data connections
//! after PROT P.

use super::Reply;

/// What is protected, and whether it can be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Protection {
    /// There is a certificate.
    pub(super) is_offered: bool,
    /// All of the control connection is encrypted.
    is_encrypted: bool,
    /// PBSZ was said.
    has_size: bool,
    /// Data connections are encrypted.
    pub(super) has_data: bool,
}

impl Protection {
    /// Whether a command is about this.
    pub(super) fn is_asked(verb: &str) -> bool {
        ["AUTH", "PBSZ", "PROT", "CCC"].contains(&verb)
    }

    /// What AUTH gets, and whether data is protected from then on, too.
    ///
    /// # Errors
    ///
    /// Why nothing comes of it.
    pub(super) fn auth(self, mechanism: &str) -> Result<(Reply, bool), Reply> {
        if self.is_encrypted {
            return Err(Reply::new(503, "it is encrypted already"));
        }
        let has_data = match &*mechanism.to_ascii_uppercase() {
            "TLS" | "TLS-C" => false,
            // Names of before the RFC; data was protected at once then.
            "SSL" | "TLS-P" => true,
            _ => return Err(Reply::new(504, "there is AUTH TLS")),
        };
        Ok((Reply::new(234, "begin the handshake"), has_data))
    }

    /// The same after the handshake.
    pub(super) fn after_handshake(self, has_data: bool) -> Self {
        Self {
            is_encrypted: true,
            has_size: has_data,
            has_data,
            ..self
        }
    }

    /// What PBSZ, PROT and CCC get.
    pub(super) fn decide(&mut self, verb: &str, argument: &str) -> Reply {
        match verb {
            _ if !self.is_encrypted => Reply::new(503, "AUTH TLS comes first"),
            "PBSZ" => self.size(argument),
            "PROT" if !self.has_size => Reply::new(503, "PBSZ 0 comes first"),
            "PROT" => self.level(argument),
            _ => Reply::new(533, "what was encrypted once stays so"),
        }
    }

    /// TLS has no buffer whose size must be agreed on: it is 0.
    fn size(&mut self, argument: &str) -> Reply {
        if argument.is_empty() || !argument.bytes().all(|byte| byte.is_ascii_digit()) {
            return Reply::new(501, "write PBSZ 0");
        }
        self.has_size = true;
        Reply::new(200, "PBSZ=0")
    }

    fn level(&mut self, argument: &str) -> Reply {
        self.has_data = match argument {
            "C" | "c" => false,
            "P" | "p" => true,
            "S" | "s" | "E" | "e" => return Reply::new(536, "there are PROT P and PROT C"),
            _ => return Reply::new(504, "there are PROT P and PROT C"),
        };
        match self.has_data {
            true => Reply::new(200, "data is encrypted"),
            false => Reply::new(200, "data is sent as it is"),
        }
    }
}
