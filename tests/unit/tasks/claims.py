"""Labelled sentences by kind: those that the lexical check must judge right, and those that it is expected to miss."""

FERRY = (
    "The ferry between Aldmoor and Skerrin runs from 12 April to 30 September. A crossing takes 85 minutes and costs"
    " 18.50 euros for adults. The vessel Northwind carries 240 passengers and 36 cars. In winter the line is closed."
)
LOAN = (
    "Borrowers may repay the loan early. The bank charges a fee of 1% of the amount repaid. No fee is charged in the last"
    " year of the term. Applications must be signed by all account holders and received by 31 March 2023."
)
