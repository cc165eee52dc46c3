//! Links the module as each system wants it: the Node that loads it has the symbols of Node-API.

fn main() {
    napi_build::setup();
}
