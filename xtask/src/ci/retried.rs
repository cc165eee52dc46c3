//! Flaky tests: tests that passed only at the second try are listed, and too many of them fail the
//! run.

use anyhow::{Context as _, Result, bail};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::workspace::Workspace;

/// How many tests may need a second try before the run fails.
const ALLOWED: usize = 3;

/// What nextest writes with the profile `ci`.
const REPORT: &str = "target/nextest/ci/junit.xml";

/// Lists the tests that needed a second try; `ran` is how the runner itself ended.
pub(super) fn judge(workspace: &Workspace, ran: Result<()>) -> Result<()> {
    ran?;
    let report = std::fs::read_to_string(workspace.path(REPORT))
        .with_context(|| format!("cannot read {REPORT}"))?;
    let flaky = flaky(&report)?;
    for name in &flaky {
        println!("passed at the second try only: {name}");
    }
    if flaky.len() > ALLOWED {
        bail!("{} tests needed a second try; {ALLOWED} may", flaky.len());
    }
    Ok(())
}

/// The test cases with a failure before their success.
fn flaky(report: &str) -> Result<Vec<String>> {
    let mut reader = Reader::from_str(report);
    let (mut case, mut found) = (String::new(), Vec::new());
    loop {
        match reader
            .read_event()
            .context("the report of the tests is damaged")?
        {
            Event::Start(tag) | Event::Empty(tag) if tag.name().as_ref() == b"testcase" => {
                case = format!(
                    "{} {}",
                    attribute(&tag, "classname")?,
                    attribute(&tag, "name")?
                );
            }
            Event::Start(tag) | Event::Empty(tag)
                if matches!(tag.name().as_ref(), b"flakyFailure" | b"flakyError")
                    && found.last() != Some(&case) =>
            {
                found.push(case.clone());
            }
            Event::Eof => return Ok(found),
            _ => {}
        }
    }
}

fn attribute(tag: &BytesStart<'_>, name: &str) -> Result<String> {
    let value = tag.try_get_attribute(name)?;
    let value = value.with_context(|| format!("a test case without {name}"))?;
    Ok(String::from_utf8_lossy(&value.value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_with_a_failure_before_its_success_is_named_once() {
        let report = r#"<testsuites><testsuite name="a">
            <testcase name="sound" classname="a::b"/>
            <testcase name="unlucky" classname="a::b"><flakyFailure type="x">no</flakyFailure><flakyFailure type="x"/></testcase>
            <testcase name="broken" classname="a::b"><failure type="x">no</failure></testcase>
        </testsuite></testsuites>"#;
        assert_eq!(flaky(report).unwrap(), ["a::b unlucky"]);
    }
}
