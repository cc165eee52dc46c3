//! The table in `docs/recipes.md` lists what is tested, and nothing else.

use semel_tests::pages::root;

use crate::behaviours;
use crate::fronts::FRONTS;

#[test]
fn the_page_has_a_row_for_each_proxy_and_a_column_for_each_behaviour() {
    let page = std::fs::read_to_string(root().join("docs/recipes.md")).expect("a page");
    let table: Vec<Vec<&str>> = page
        .lines()
        .skip_while(|line| !line.starts_with("| behaviour |"))
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let names: Vec<&str> = FRONTS.iter().map(|front| front.name).collect();
    assert_eq!(table[0][1..], names, "the proxies");
    let rows = table.iter().skip(2);
    let (tested, cells): (Vec<&str>, Vec<&[&str]>) = rows.map(|row| (row[0], &row[1..])).unzip();
    let tested: Vec<&str> = tested
        .into_iter()
        .map(|name| name.split(':').next().unwrap_or_default())
        .collect();
    assert_eq!(tested, behaviours::names(), "the behaviours");
    for row in cells {
        assert!(row.len() == names.len() && row.iter().all(|cell| !cell.is_empty()));
    }
}
