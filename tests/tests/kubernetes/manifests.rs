//! The manifests fit the API, what they name exists, and pods may do no more than they need.

use std::process::Output;

use semel_testkit::private::new_folder;
use semel_tests::{semel, semel_command};
use serde_json::{Value, json};

use crate::built::{Resources, build, documents, place, python, settings_with};

/// The oldest version that has everything in its default, and the newest whose schemas are known.
const VERSIONS: [&str; 2] = ["1.30", "1.37"];

fn validate(text: &str, version: &str) -> Output {
    let folder = new_folder("manifests");
    let file = folder.join("manifests.yaml");
    std::fs::write(&file, text).expect("a folder of our own");
    let mut command = python();
    command.args(["-m", "kubernetes_validate", "--strict"]);
    command.args(["--kubernetes-version", version]).arg(&file);
    let output = command.output().expect("it runs");
    std::fs::remove_dir_all(folder).expect("a folder of our own");
    output
}

#[test]
fn manifests_fit_the_schemas_of_the_oldest_and_the_newest_version() {
    let secret = std::fs::read_to_string(place("secret.example.yaml")).expect("a file");
    for text in [build("base"), build("overlays/production"), secret] {
        let all = documents(&text);
        let own = all.iter().filter(|one| one["kind"] != "ServiceMonitor");
        let own = own.count();
        for version in VERSIONS {
            let output = validate(&text, version);
            let said = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{version}: {said}");
            assert_eq!(said.matches(" passed for resource ").count(), own, "{said}");
        }
    }
}

#[test]
fn a_field_that_the_schemas_lack_is_found() {
    let text = build("base");
    assert!(text.contains("        readinessProbe:"));
    let broken = text.replace("        readinessProbe:", "        readynessProbe:");
    assert!(!validate(&broken, VERSIONS[1]).status.success());
}

/// Whether labels have all that a selector asks for.
fn selects(selector: &Value, labels: &Value) -> bool {
    let selector = selector.as_object().expect("labels");
    !selector.is_empty() && selector.iter().all(|(name, value)| labels[name] == *value)
}

#[test]
fn what_the_manifests_name_exists() {
    let all = Resources::of_production();
    let labels = &all.one("Deployment")["spec"]["template"]["metadata"]["labels"];
    let ports = all.sidecar()["ports"].as_array().expect("ports");
    let has_port = |name: &Value| ports.iter().any(|port| port["name"] == *name);
    for service in all.of_kind("Service") {
        assert!(selects(&service["spec"]["selector"], labels), "{service}");
        assert!(has_port(&service["spec"]["ports"][0]["targetPort"]));
    }
    let selector = &all.one("Deployment")["spec"]["selector"]["matchLabels"];
    assert!(selects(selector, labels));
    for (kind, path) in [
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
    ] {
        let selector = all.one(kind).pointer(path).expect("labels");
        assert!(selects(selector, labels), "{kind}");
    }
    let rules = all.one("NetworkPolicy")["spec"]["ingress"].as_array();
    for rule in rules.expect("rules") {
        assert!(has_port(&rule["ports"][0]["port"]), "{rule}");
    }
    let monitor = &all.one("ServiceMonitor")["spec"];
    let watched: Vec<&Value> = all
        .of_kind("Service")
        .into_iter()
        .filter(|one| {
            selects(
                &monitor["selector"]["matchLabels"],
                &one["metadata"]["labels"],
            )
        })
        .collect();
    assert_eq!(watched.len(), 1, "one service has the figures");
    let port = &watched[0]["spec"]["ports"][0]["name"];
    assert_eq!(monitor["endpoints"][0]["port"], *port);
    let target = &all.one("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"];
    assert_eq!(target["name"], all.one("Deployment")["metadata"]["name"]);
    assert_eq!(
        all.pod()["serviceAccountName"],
        all.one("ServiceAccount")["metadata"]["name"]
    );
}

#[test]
fn mounted_files_are_those_that_the_settings_name() {
    let all = Resources::of_production();
    let volumes = all.pod()["volumes"].as_array().expect("volumes");
    let mounted = |path: &str| {
        let mounts = all.sidecar()["volumeMounts"].as_array();
        let mounts = mounts.expect("mounts").iter();
        let mut names = mounts.filter(|mount| mount["mountPath"] == path);
        let name = &names.next().expect("it is mounted")["name"];
        let mut volumes = volumes.iter();
        volumes
            .find(|volume| volume["name"] == *name)
            .expect("a volume")
    };
    let map = &mounted("/etc/semel/settings")["configMap"]["name"];
    let mut maps = all.of_kind("ConfigMap").into_iter();
    let found = maps.find(|one| one["metadata"]["name"] == *map);
    assert!(found.expect("a config map")["data"]["semel.toml"].is_string());
    let arguments = &all.sidecar()["args"];
    let expected = json!(["serve", "--config", "/etc/semel/settings/semel.toml"]);
    assert_eq!(*arguments, expected);

    let secret = std::fs::read_to_string(place("secret.example.yaml")).expect("a file");
    let secret = documents(&secret).remove(0);
    let name = &mounted("/etc/semel/secret")["secret"]["secretName"];
    assert_eq!(secret["metadata"]["name"], *name);
    let namespace = &all.one("Deployment")["metadata"]["namespace"];
    assert_eq!(secret["metadata"]["namespace"], *namespace);
    let named = all.settings().split("/etc/semel/secret/").skip(1);
    let named: Vec<&str> = named.filter_map(|rest| rest.split('"').next()).collect();
    let keys: Vec<&String> = secret["stringData"]
        .as_object()
        .expect("keys")
        .keys()
        .collect();
    assert!(!named.is_empty() && named.iter().all(|file| keys.iter().any(|key| key == file)));
}

#[test]
fn pods_may_do_no_more_than_they_need() {
    let all = Resources::of_production();
    let pod = all.pod();
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    let (init, main) = (&pod["initContainers"], &pod["containers"]);
    let containers = [init, main].into_iter().filter_map(Value::as_array);
    let containers: Vec<&Value> = containers.flatten().collect();
    assert_eq!(containers.len(), 2);
    for container in containers {
        let expected = json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        });
        assert_eq!(container["securityContext"], expected, "{container}");
        assert!(container["resources"]["limits"]["memory"].is_string());
    }
    assert_eq!(all.sidecar()["restartPolicy"], "Always", "a native sidecar");
}

/// The grace period is longer than everything that happens in it.
#[test]
fn pod_has_the_time_that_its_end_takes() {
    let all = Resources::of_production();
    let grace = &all.pod()["terminationGracePeriodSeconds"];
    let stop = &all.pod()["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"];
    let drain = all.settings().split("drain_time = \"").nth(1);
    let drain = drain.and_then(|rest| rest.split("s\"").next());
    let drain: u64 = drain.expect("a drain time").parse().expect("seconds");
    let (grace, stop) = (grace.as_u64().expect("seconds"), stop.as_u64());
    assert!(grace > stop.expect("seconds") + drain, "{grace} s");
}

#[test]
fn settings_are_taken_by_the_program() {
    let (all, folder) = (Resources::of_production(), new_folder("settings"));
    std::fs::write(folder.join("store-url"), "redis://redis:6379\n").expect("a file");
    std::fs::write(
        folder.join("admin-token"),
        "0123456789abcdef0123456789abcdef\n",
    )
    .expect("a file");
    let own = format!("{}/", folder.display());
    let text = settings_with(all.settings(), &[("/etc/semel/secret/", own)]);
    let file = folder.join("semel.toml");
    std::fs::write(&file, text).expect("a file");
    let mut command = semel_command(&semel());
    command.args(["config", "check", "--config"]).arg(&file);
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    std::fs::remove_dir_all(folder).expect("a folder of our own");
}
