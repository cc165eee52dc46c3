# The tour of the repository: `just --list`. Each recipe is a command of `cargo xtask`.

# Show the recipes
default:
    @just --list

# Everything a change must pass; the same as CI
verify:
    cargo xtask ci

# What can be checked with nothing but Rust
quick:
    cargo xtask ci --quick

# The tests that need nothing but Rust
test *arguments:
    cargo test --workspace --all-features {{arguments}}

# Format and lint
lint:
    cargo fmt --all
    cargo clippy --workspace --all-targets --all-features -- -D warnings

# Write the generated files anew
generate:
    cargo xtask generate

# Start the real servers that tests use
up *names:
    cargo xtask services up {{names}}

# End them
down *names:
    cargo xtask services down {{names}}

# Explore the model of the protocol, with its full bounds
model:
    cargo xtask model

# Random sequences with faults, for long
soak *arguments:
    cargo xtask faults --soak {{arguments}}

# Measure
bench name="core":
    cargo xtask bench {{name}}

# Which requirement is met, and by which test
conformance:
    cargo xtask conformance

# The documentation as a book
book:
    cargo xtask book
