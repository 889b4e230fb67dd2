//! Parameters of credentials: names and values with commas between them (RFC 9110, section 11.2).
//!
//! Clients differ in what they quote, so either form is taken for every value. What stands twice is
//! refused: two readers could take either.

use super::CredentialsError;

/// Parameters of one Authorization header.
pub const AUTH_PARAMS_MAX: usize = 32;

/// The parameters, by name in small letters; values without quotes and backslashes.
#[derive(Debug, Default)]
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    /// Reads all of `text`.
    pub(super) fn parse(text: &str) -> Result<Self, CredentialsError> {
        let mut params = Self::default();
        let mut rest = text;
        loop {
            // Lists may have empty elements (RFC 9110, section 5.6.1.2).
            rest = rest.trim_start_matches([' ', '\t', ',']);
            if rest.is_empty() {
                return Ok(params);
            }
            let (name, behind) = rest.split_once('=').ok_or(CredentialsError::Syntax)?;
            let name = name.trim_end().to_ascii_lowercase();
            let is_name_byte = |b: u8| b.is_ascii_alphanumeric() || b"-_*".contains(&b);
            if name.is_empty() || !name.bytes().all(is_name_byte) {
                return Err(CredentialsError::Syntax);
            }
            let (value, behind) = value(behind.trim_start())?;
            if params.0.len() == AUTH_PARAMS_MAX || params.get(&name).is_some() {
                return Err(CredentialsError::Syntax);
            }
            params.0.push((name, value));
            rest = behind.trim_start();
            if !rest.is_empty() && !rest.starts_with(',') {
                return Err(CredentialsError::Syntax);
            }
        }
    }

    /// The value of that name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut params = self.0.iter();
        params.find(|(n, _)| n == name).map(|(_, value)| &**value)
    }
}

/// A value at the front of `text`, and what follows.
fn value(text: &str) -> Result<(String, &str), CredentialsError> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        let is_plain = value.bytes().all(|b| b.is_ascii_graphic() && b != b'"');
        return match is_plain && !value.is_empty() {
            true => Ok((value.to_owned(), rest)),
            false => Err(CredentialsError::Syntax),
        };
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((value, &quoted[at + 1..])),
            '\\' => {
                let (_, escaped) = characters.next().ok_or(CredentialsError::Syntax)?;
                value.push(escaped);
            }
            plain => value.push(plain),
        }
    }
    Err(CredentialsError::Syntax)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_quoted_or_not() {
        let params = Params::parse(r#", A = "x, \"y\\" ,b=/p?q=1,, C="" ,"#).unwrap();
        assert_eq!(params.get("a"), Some(r#"x, "y\"#));
        assert_eq!(params.get("b"), Some("/p?q=1"));
        assert_eq!((params.get("c"), params.get("d")), (Some(""), None));
        for bad in [
            "a", "=b", "a=", "a=\"b", "a=\"b\\", "a=b c=d", "a=b\"", "a b=c", "a=b,A=c", "a=é",
        ] {
            assert!(Params::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parameters_are_counted_to_their_limit() {
        let many = |count| (0..count).map(|n| format!("p{n}=v,")).collect::<String>();
        assert!(Params::parse(&many(AUTH_PARAMS_MAX)).is_ok());
        assert!(Params::parse(&many(AUTH_PARAMS_MAX + 1)).is_err());
    }

    proptest! {
        #[test]
        fn what_is_quoted_comes_back(values in prop::collection::vec("\\PC{0,12}", 0..8)) {
            let quote = |value: &String| value.replace('\\', "\\\\").replace('"', "\\\"");
            let text: String = values
                .iter()
                .enumerate()
                .map(|(n, value)| format!("p{n}=\"{}\", ", quote(value)))
                .collect();
            let params = Params::parse(&text).unwrap();
            for (n, value) in values.iter().enumerate() {
                prop_assert_eq!(params.get(&format!("p{n}")), Some(&**value));
            }
        }

        #[test]
        fn noise_never_panics(text in "[a=\", \\\\\\PC]{0,60}") {
            let _any = Params::parse(&text);
        }
    }
}
