module github.com/semel-rs/semel/sdks/go

go 1.26
