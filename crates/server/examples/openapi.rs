//! Prints the OpenAPI document of both APIs: what `spec/openapi.json` is made from.

fn main() -> anyhow::Result<()> {
    print!("{}", semel_server::openapi()?);
    Ok(())
}
