"""Who only pretends to work: what the server reads of every update, detectors, and one score per
client.

The public function is `poise.audit`. `poise.auditing.probe` knows `poise.core` only, so that every
run can read what the audit needs.
"""
