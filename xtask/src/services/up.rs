//! Brings services up: installs them, starts them, and waits until they are ready.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::{Instance, Profile, Service, State, install, instance, ports};
use semel_devservers::time::{Stopwatch, pause};

/// How long a service may take to become usable; the slowest here needs a fifth of it.
const READY_LIMIT: Duration = Duration::from_secs(90);

/// How often a server that ends while starting is started again. After a crash the first try may
/// meet what the dead one left behind.
const RESTARTS: u32 = 5;

/// Brings all of `services` up, in order.
pub(crate) fn up(services: &[Box<dyn Service>], state: &mut State) -> Result<()> {
    let profiles: Vec<Profile> = services.iter().map(|service| service.profile()).collect();
    let packages: Vec<_> = profiles
        .iter()
        .flat_map(|profile| profile.packages)
        .copied()
        .collect();
    install::packages(&packages)?;
    let tools = state.folder().join("tools");
    for wheel in profiles.iter().filter_map(|profile| profile.wheel) {
        install::fetch(wheel, &tools)?;
    }
    for service in services {
        let name = service.profile().name;
        one(service.as_ref(), state).with_context(|| {
            format!("{name} did not come up (`services down --wipe {name}` gives it a new start)")
        })?;
    }
    Ok(())
}

fn one(service: &dyn Service, state: &mut State) -> Result<()> {
    let profile = service.profile();
    let name = profile.name;
    if state.get(name).is_none() {
        let folder = instance::new_folder(state.folder(), name, profile.user)?;
        state.add(name, folder, profile.ports)?;
    }
    let entry = state.get(name).cloned().unwrap_or_default();
    let mut instance = Instance::new(name, profile.user, state);
    if entry.all_alive() && service.healthy(&instance).is_ok() {
        instance.say("already up");
        return Ok(());
    }
    if !entry.processes.values().any(super::process::Record::alive) {
        refuse_taken_ports(entry.ports.values().copied())?;
    }
    let watch = Stopwatch::start();
    instance.say("starting");
    start_until_ready(service, &mut instance)?;
    instance.say(&format!("ready after {:.1} s", watch.seconds()));
    let version = service.version(&instance)?;
    let env = service.env(&instance)?;
    state.change(name, |entry| {
        entry.version = version;
        entry.env = env;
        entry.wanted = true;
    })
}

fn refuse_taken_ports(mut ports: impl Iterator<Item = u16>) -> Result<()> {
    match ports.find(|port| !ports::is_free(*port)) {
        Some(port) => bail!("port {port}, which was free before, is now used by another process"),
        None => Ok(()),
    }
}

fn start_until_ready(service: &dyn Service, instance: &mut Instance<'_>) -> Result<()> {
    let mut restarts = 0;
    loop {
        let started = service.start(instance);
        let ready = started
            .and_then(|()| instance.wait_for("ready", READY_LIMIT, || service.healthy(instance)));
        match ready {
            Ok(()) => return Ok(()),
            Err(error) if restarts < RESTARTS && !instance.dead()?.is_empty() => {
                restarts += 1;
                let reason = error.to_string();
                let reason = reason.lines().next().unwrap_or_default();
                instance.say(&format!("trying again: {reason}"));
                pause(Duration::from_secs(1));
            }
            Err(error) => return Err(error),
        }
    }
}
