//! Tokens, which a header carries (RFC 6750), or the query of a URL.

use onrush_wire::auth::{JwtError, token_of_query};
use tracing::info;

use super::super::login::Login;
use super::super::tokens::TokenError;
use super::{Asked, Fault, Refusal, Rules, count, query};

impl Rules {
    /// The token in the URL, for players that can send no header of their own.
    pub(super) fn token_of_url<'a>(&self, asked: &Asked<'a>) -> Option<&'a str> {
        self.tokens.as_ref()?;
        query(asked.uri).and_then(token_of_query)
    }

    /// Whose a token is.
    ///
    /// # Errors
    ///
    /// Why it is not taken, if there is no hook that may know it.
    pub(super) async fn token(&self, asked: &Asked<'_>, token: &str) -> Result<Login, Refusal> {
        let tokens = self.tokens.as_ref();
        // One that was right is no guess, whatever else comes from its address.
        if !tokens.is_some_and(|it| it.remembers(token)) {
            self.check_attempts(&self.apart_attempts, asked.peer)?;
        }
        let now = self.started.elapsed();
        let claims = match tokens {
            Some(tokens) => tokens.check(token, now).await.map(Box::new).map(Some),
            None if self.hook.is_none() => return Err(self.unknown(asked)),
            None => Ok(None),
        };
        let claims = match claims {
            Ok(claims) => claims,
            Err(_) if self.hook.is_some() => None,
            Err(TokenError::Unanswered) => {
                count(&self.stats.unanswered);
                return Err(Refusal::Unanswered);
            }
            Err(TokenError::Token(error)) => {
                count(&self.stats.wrong);
                return Err(self.challenge(asked, Fault::Token, error.note()));
            }
            Err(TokenError::Forged) => {
                count(&self.stats.wrong);
                // Nobody guesses a signature, but to look at one takes its time.
                self.apart_attempts.failed(asked.peer, now);
                let (peer, protocol, error) =
                    (asked.peer, asked.protocol.as_str(), JwtError::Signature);
                info!("{peer}: {error}, by {protocol}, for {:?}", asked.path);
                return Err(self.challenge(asked, Fault::Token, error.note()));
            }
        };
        Ok(Login::Token {
            token: token.to_owned(),
            claims,
        })
    }
}
