"""The code that the APIs share: findings, rules, reports, events, server-sent events, fields."""
