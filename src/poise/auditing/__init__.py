"""The audit: find free-riders from measurements of their updates; score each client.

The public function is `poise.audit`. `poise.auditing.probe` imports `poise.core` only,
so that every run can record the measurements that the audit needs.
"""
