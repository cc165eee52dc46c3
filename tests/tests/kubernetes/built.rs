//! What kustomize makes of the manifests.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use semel_tests::pages::root;
use serde_json::Value;

const TO_JSON: &str =
    "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))";

fn needs(variable: &str) -> PathBuf {
    let value = std::env::var_os(variable);
    let value =
        value.unwrap_or_else(|| panic!("{variable}: see `cargo xtask services up kubernetes`"));
    PathBuf::from(value)
}

/// The Python that has the schemas and reads YAML.
pub(crate) fn python() -> Command {
    Command::new(needs("SEMEL_TEST_KUBERNETES_PYTHON"))
}

/// A folder or file of `deploy/kubernetes`.
pub(crate) fn place(name: &str) -> PathBuf {
    root().join("deploy/kubernetes").join(name)
}

/// The YAML that kustomize makes of a folder.
pub(crate) fn build(name: &str) -> String {
    let mut command = Command::new(needs("SEMEL_TEST_KUSTOMIZE"));
    let output = command.arg("build").arg(place(name)).output();
    let output = output.expect("kustomize runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// The documents of a YAML text.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let mut command = python();
    command.args(["-c", TO_JSON]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("Python runs");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// All resources of one overlay.
pub(crate) struct Resources(pub(crate) Vec<Value>);

impl Resources {
    pub(crate) fn of_production() -> Self {
        Self(documents(&build("overlays/production")))
    }

    pub(crate) fn of_kind(&self, kind: &str) -> Vec<&Value> {
        let all = self.0.iter();
        all.filter(|resource| resource["kind"] == kind).collect()
    }

    /// The only one of a kind.
    pub(crate) fn one(&self, kind: &str) -> &Value {
        let found = self.of_kind(kind);
        assert_eq!(found.len(), 1, "{kind}");
        found[0]
    }

    pub(crate) fn pod(&self) -> &Value {
        &self.one("Deployment")["spec"]["template"]["spec"]
    }

    pub(crate) fn sidecar(&self) -> &Value {
        &self.pod()["initContainers"][0]
    }

    /// The settings of the sidecar.
    pub(crate) fn settings(&self) -> &str {
        let maps = self.of_kind("ConfigMap").into_iter();
        let mut texts = maps.filter_map(|map| map["data"]["semel.toml"].as_str());
        texts.next().expect("a config map with semel.toml")
    }
}

/// The settings with these other places.
pub(crate) fn settings_with(text: &str, others: &[(&str, String)]) -> String {
    others.iter().fold(text.to_owned(), |text, (old, new)| {
        assert!(text.contains(old), "the settings have no {old}");
        text.replace(old, new)
    })
}
