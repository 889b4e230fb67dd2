//! Logins that outlast a request, as those of FTP do: what they were proven by may end before them.

use super::super::file::Secret;
use super::super::login::Login;
use super::super::watched::Watched;
use super::Rules;

impl Rules {
    /// By what a user's password is known now, if it is one of the file.
    pub(in crate::users) fn secret(&self, user: &str) -> Option<Secret> {
        let file = self.file.as_ref().map(Watched::now)?;
        file.user(user).map(|user| user.secret.clone())
    }

    /// Whether somebody who has logged in would be let in now, by the same token, or by the
    /// password that was known by `secret`. A hook is asked each time what one may.
    pub(in crate::users) async fn stands(&self, login: &Login, secret: Option<&Secret>) -> bool {
        if self.is_open {
            return true;
        }
        match login {
            Login::Nobody | Login::Claimed { .. } => true,
            Login::User(user) => secret.is_some() && self.secret(user).as_ref() == secret,
            Login::Token { claims: None, .. } => self.hook.is_some(),
            Login::Token { token, .. } => match &self.tokens {
                Some(tokens) => tokens.check(token, self.started.elapsed()).await.is_ok(),
                None => false,
            },
        }
    }
}
