"""beanstalkd's protocol, for the same jobs as the HTTP API."""
