"""The ledger over PostgreSQL: every statement of nightdesk, as stores over one database.

postgres     the ledger: opens the database and holds the stores
submission   batches and their jobs, by COPY
queue        leases and final states                 (fairness: their order)
attempts     paid calls, before and after            (budgets, tenant_budgets: money; answer_cache: calls
                                                      that need not be made)
duties       the leader's statements                 (rescuing: jobs of lost workers)
publishing   the outbox of results
actions      an operator's changes, in pages         (pages: one bad row stops no other, and the order of locks)
removal      erased and deleted content
views        jobs, batches and audits
fleet        presence of workers, paused lanes
inspection   the doctor's counts                     (invariants: rows that must not exist)
database     connections and errors                  (outage: notices soon that the server is away)
schema_version and upgrade bring the schema up
"""
