//! The real program: started, asked, told to read its settings again, told to end.

mod apis;
mod life;
mod support;
mod words;
