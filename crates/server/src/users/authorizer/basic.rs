//! Passwords themselves, which Basic carries (RFC 7617), and FTP.

use super::super::file::{REALM, Secret};
use super::super::login::Login;
use super::super::watched::Watched;
use super::{Asked, Fault, PLAIN, Refusal, Rules, count};

impl Rules {
    /// Whose a password is.
    ///
    /// # Errors
    ///
    /// Why it is not taken, if there is no hook that may know it.
    pub(super) async fn password(
        &self,
        asked: &Asked<'_>,
        user: &str,
        password: &str,
    ) -> Result<Login, Refusal> {
        if !self.takes_passwords(asked) {
            count(&self.stats.challenged);
            return Err(self.challenge(asked, Fault::None, PLAIN));
        }
        let file = self.file.as_ref().map(Watched::now);
        let known = file.as_ref().and_then(|file| file.user(user));
        let realm = file.as_ref().map_or(REALM, |file| file.realm());
        let (hash, is_of_user) = match known.map(|user| &user.secret) {
            Some(digest @ Secret::Digest(_)) if digest.is_of(user, realm, password) => {
                return Ok(Login::User(user.to_owned()));
            }
            Some(Secret::Argon2(hash)) if self.passwords.remembers(hash, password) => {
                return Ok(Login::User(user.to_owned()));
            }
            Some(Secret::Argon2(hash)) => (Some(&**hash), true),
            None if self.hook.is_some() => {
                return Ok(Login::Claimed {
                    user: user.to_owned(),
                    password: password.to_owned().into(),
                });
            }
            // As long as it takes for others, so that the time does not tell who is a user.
            _ => (file.as_ref().and_then(|file| file.any_argon2()), false),
        };
        let now = self.started.elapsed();
        let Some(hash) = hash else {
            return Err(self.wrong(asked, now));
        };
        // Charged before it is looked at, which is done one at a time: of many that come at once
        // all would else wait, and hold up those of others.
        let mut charge = self.attempts_of(asked).charge(asked.peer, now);
        let turn = self.passwords.turn().await;
        // From here on it costs: whoever leaves before the answer is charged.
        charge.stays = turn.is_some();
        let is_of = match turn {
            Some(turn) => self.passwords.is_of(turn, hash, password).await,
            None => None,
        };
        charge.stays = is_of.is_some_and(|is_of| !(is_of && is_of_user));
        match is_of {
            Some(true) if is_of_user => Ok(Login::User(user.to_owned())),
            Some(_) => Err(self.was_wrong(asked)),
            None => {
                count(&self.stats.unanswered);
                Err(Refusal::Unanswered)
            }
        }
    }
}
