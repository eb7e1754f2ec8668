"""Why, for fleets of models: the causal story of a replica, a model or a moment, told from a fleet's journal alone.

places   where each replica is, as far as events, commands and notes say
telling  what each kind of event and note says, and what it follows from
stories  the facts that answer a question, in the order of time
"""
