"""The beanstalkd door: its protocol, over the same tickets as every other door."""
