//! `--leads` as a file: leads that are there from the first start, with their phones.
//!
//! ```text
//! leadId,phone,name,statusId,responsibleId
//! 4001,+998901112233,Ali,2,501
//! ```

use super::catalogue::stage;
use super::record::{Contact, Lead};
use crate::body::is_phone;
use std::collections::BTreeMap;

/// Reads the text of a file. All but `leadId` may be empty or left out; a lead may stand in several
/// lines, one for each of its phones.
///
/// # Errors
/// The first line that cannot be read, in words.
pub fn parse(text: &str) -> Result<Vec<Lead>, String> {
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .from_reader(text.as_bytes());
    let headers = reader.headers().map_err(|error| error.to_string())?.clone();
    let column = |name: &str| headers.iter().position(|header| header.trim() == name);
    let id_at = column("leadId").ok_or("the header names no column leadId")?;
    let (phone_at, name_at) = (column("phone"), column("name"));
    let (stage_at, charge_at) = (column("statusId"), column("responsibleId"));
    let mut leads: BTreeMap<i64, Lead> = BTreeMap::new();
    for (number, row) in reader.records().enumerate() {
        let row = row.map_err(|error| error.to_string())?;
        let line = number + 2;
        let cell = |at: Option<usize>| at.and_then(|at| row.get(at)).map_or("", str::trim);
        let id = cell(Some(id_at));
        let Some(id) = id.parse::<i64>().ok().filter(|&id| id > 0) else {
            return Err(format!("line {line}: `{id}` is not the id of a lead"));
        };
        let (phone, name) = (cell(phone_at), cell(name_at));
        if !phone.is_empty() && !is_phone(phone) {
            return Err(format!(
                "line {line}: `{phone}` is not a number such as +998901112233"
            ));
        }
        let status = id_in(cell(stage_at), "statusId", line)?;
        let known = stage(status);
        if status.is_some() && known.is_none() {
            return Err(format!("line {line}: `statusId`: no such stage"));
        }
        let responsible = id_in(cell(charge_at), "responsibleId", line)?;
        let lead = leads.entry(id).or_insert_with(|| Lead::fresh(id));
        if !name.is_empty() {
            name.clone_into(&mut lead.name);
        }
        if let Some(known) = known {
            (lead.status_id, lead.pipe_id) = (status, Some(known.pipe));
        }
        lead.responsible_id = responsible.or(lead.responsible_id);
        if lead.contacts.is_empty() && !(phone.is_empty() && name.is_empty()) {
            lead.contacts.push(Contact {
                name: lead.name.clone(),
                ..Contact::default()
            });
        }
        if let (Some(contact), false) = (lead.contacts.first_mut(), phone.is_empty()) {
            contact.phones.push(phone.to_owned());
        }
    }
    Ok(leads.into_values().collect())
}

/// The id in a cell; `None` of an empty one.
fn id_in(cell: &str, name: &str, line: usize) -> Result<Option<i64>, String> {
    let id = cell.parse().ok().filter(|&id: &i64| id > 0);
    match cell {
        "" => Ok(None),
        _ if id.is_some() => Ok(id),
        _ => Err(format!("line {line}: `{name}`: `{cell}` is no id")),
    }
}
