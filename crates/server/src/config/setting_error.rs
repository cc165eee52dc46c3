//! [`SettingError`]: a setting names a file, URL or endpoint that is unusable.

/// A setting names a file, a URL or an endpoint that is unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {message}\n    fix: {fix}")]
pub struct SettingError {
    /// The path of the setting.
    pub setting: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub fix: &'static str,
}

impl SettingError {
    /// The file that `setting` names is unusable.
    pub(crate) const fn file(setting: &'static str, message: String) -> Self {
        let fix = "check the file";
        Self {
            setting,
            message,
            fix,
        }
    }

    /// The URL that `setting` names is unusable.
    pub(crate) const fn url(setting: &'static str, message: String) -> Self {
        let fix = "check the URL";
        Self {
            setting,
            message,
            fix,
        }
    }
}
